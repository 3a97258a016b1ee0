"""The modules of the built-in parts; importing them registers the parts."""

from metareplay.posteriors.families import dirac, flow, gaussian, implicit, laplace, mixture, radial
from metareplay.posteriors.matching import avb, direct, ssge
from metareplay.strategies import (
    baselines,
    class_means,
    contrast,
    coresets,
    ewc,
    generated_decoders,
    generative_replay,
    posterior_replay,
    prior_focused,
    rehearsal,
    reservoir,
    synaptic_intelligence,
    task_networks,
    without_forgetting,
)
from metareplay.task_maps import direct as direct_maps
from metareplay.task_maps import generated

BUILT_IN = (
    *(dirac, gaussian, radial, implicit, flow, laplace, mixture),
    *(direct, ssge, avb),
    *(direct_maps, generated),
    *(posterior_replay, coresets, prior_focused, ewc, rehearsal, baselines),
    *(synaptic_intelligence, reservoir, without_forgetting, class_means, contrast),
    *(generative_replay, generated_decoders, task_networks),
)
