"""What files hold and need, read from their bytes. Takes buffers and streams; opens nothing."""
