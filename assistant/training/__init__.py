"""What runs inside the trainer's job. It stands alone and imports nothing else of Nightshift."""
