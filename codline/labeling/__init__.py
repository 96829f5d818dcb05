"""Images handed out to people, their answers, and labels handed back: query folders, answer sheets, history, export."""
