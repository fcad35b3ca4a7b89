"""What the pages of the engine and of the systems share: requests, the frame of a page, jobs, live progress."""
