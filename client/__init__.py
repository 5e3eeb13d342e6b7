"""The client: a library (`client.sync`, `client.aio`) and a command line (`python -m client`)."""
