"""The widgets of the chat, one a file."""
