"""Object stores for measurements: an S3 server, a proxy that delays, a slow file system."""
