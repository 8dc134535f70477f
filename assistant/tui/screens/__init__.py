"""The screens of the chat, one a file."""
