"""Models of text: what turns lines into vectors and judges lines that no signature knows. Nothing here reads logs or the store."""
