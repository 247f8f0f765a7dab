# %% [markdown]
# # A first look: from logs to a judged model
#
# The sample runs, step by step. A py:percent notebook: any notebook program opens it with jupytext,
# and `python notebooks/first_look.py` runs it.

# %%
import tempfile
from pathlib import Path

import fitkit
from fitkit.cli.demo import sample_data
from fitkit.diagnosis import layer_shares, phase_shares

folder = Path(tempfile.mkdtemp())
dataset = fitkit.ingest([sample_data() / "pytorch"], folder / "runs")
dataset.counts()

# %% [markdown]
# Where does a step go? With two workers, backward also waits for the gradients of the other.

# %%
shares = phase_shares(dataset)
small = shares[(shares.network == "vggsmall") & (shares.local_batch == 4)]
print(small.pivot_table(index="label", columns="phase", values="share").round(3))

# %%
layers = layer_shares(dataset)
largest = layers[(layers.network == "vggsmall") & (layers.local_batch == 64)]
print(largest[["layer", "layer_type", "phase", "duration_s", "share"]].head(8))

# %% [markdown]
# A step costs a fixed time, a time for each sample, and what the workers cost one another. Below 30
# configurations no form of that is chosen: the geometric mean of several answers.

# %%
plain = 'network == "vggsmall" and instrument == "none"'
model = fitkit.fit(dataset, recipe="step", where=plain)
model.summary()

# %% [markdown]
# How wrong is that on batches it never saw? The largest batch left out is an extrapolation.

# %%
report = fitkit.validate(
    dataset, recipe="step", where=plain, leave_out="local_batch", keep_smallest=True
)
report.summary()

# %%
print(report.verdict)
