"""The only room that starts processes, opens sockets and asks the machine."""
