"""What is offered: declaration, schemas, registry and the executors."""
