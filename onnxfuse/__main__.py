"""`python -m onnxfuse` is the command `onnxfuse`."""

from onnxfuse.cli import main

main()
