"""When things are done: Prefect flows over DVC stages."""
