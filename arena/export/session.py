"""Sessions of onnxruntime for a policy: one thread, quiet, on the CPU.

Tests: `tests/arena/export/test_onnx.py`, `tests/arena/export/test_actor.py`.
"""

from __future__ import annotations

import onnxruntime

_ERRORS_ONLY = 3


def make_session(model: bytes) -> onnxruntime.InferenceSession:
    """Open a model whose weights are inline."""
    options = onnxruntime.SessionOptions()
    # A policy's products are too small for threads, which would only compete with the learners.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _ERRORS_ONLY
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
