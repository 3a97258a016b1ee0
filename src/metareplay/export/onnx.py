"""ONNX graphs of a learned model, with labels, tasks and columns as metadata (extra ``onnx``)."""

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from metareplay.errors import ConfigError
from metareplay.export.choice import BATCH, AllTasks
from metareplay.export.facts import as_text, facts_of
from metareplay.export.modules import Learned, SampledNetworks, TaskNetwork

CONTENTS = ("mean", "samples")
"""What of a posterior a graph holds."""


def onnx_graph(
    learned: Learned,
    task: int | None,
    *,
    content: str = "mean",
    samples: int | None = None,
    criterion: str | None = None,
) -> bytes:
    """One task's network, or without a task all tasks' mean networks with the choice of the task."""
    if content not in CONTENTS:
        raise ConfigError(f"content={content!r} is unknown; choose one of {', '.join(CONTENTS)}")
    if task is None and content == "samples":
        raise ConfigError("a graph of all tasks holds mean networks only; name a task, or export the mean")
    if task is not None and criterion is not None:
        raise ConfigError("a criterion chooses between tasks, but the graph holds one task; leave one of them out")
    if content == "mean" and samples is not None:
        raise ConfigError("a graph of the mean has no weight samples; leave the number of samples out")
    answer = "probabilities" if learned.classifies else "target_mean"
    facts = {**facts_of(learned, task), "content": content}
    if task is None:
        chooses = AllTasks(learned, criterion)
        module: nn.Module = chooses
        names, facts["criterion"] = ["task", answer, "task_scores"], chooses.criterion.name
    elif content == "mean":
        module, names = TaskNetwork(learned, task), [answer]
    else:
        module = SampledNetworks(learned, task, samples)
        names = [answer, "total", "aleatoric", "epistemic"] if learned.classifies else [answer, "target_std"]
    return _serialised(module, learned, names, facts)


def _serialised(module: nn.Module, learned: Learned, names: Sequence[str], facts: Mapping[str, Any]) -> bytes:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"ONNX graphs need the package {error.name}; install it with pip install 'metareplay[onnx]'"
        ) from error
    example = torch.zeros(3, *learned.learner.input_shape)
    with torch.no_grad(), _quiet():
        module.eval()(example)  # whatever is tried out once is tried out now
        program = torch.onnx.export(
            module,
            (example,),
            input_names=["inputs"],
            output_names=list(names),
            dynamic_shapes=({0: torch.export.Dim("rows", max=BATCH)},),
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    proto = program.model_proto
    if not proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param:
        raise ConfigError("PyTorch cannot export this network for any number of rows; use the state dict instead")
    for key, value in facts.items():
        proto.metadata_props.add(key=key, value=as_text(value))
    for entry in (*proto.graph.node, *proto.graph.value_info, *proto.graph.initializer, *proto.graph.output):
        del entry.metadata_props[:]  # where in the source each came from
    del proto.graph.metadata_props[:]
    return bytes(proto.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about its own parts."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
