"""The codline command and its terminal output."""
