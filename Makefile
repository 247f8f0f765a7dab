# Everything that a developer and CI run. PYTHON is that of the environment in use.
PYTHON ?= python

.PHONY: check test schemas samples accuracy logs plans calibration reports fuzz cntk-run

check:  ## style, types, layers, dependencies, spelling
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m mypy
	lint-imports
	deptry .
	codespell

test:  ## tests with branch coverage
	$(PYTHON) -m pytest --cov

schemas:  ## write schemas/ from fitkit/records.py
	$(PYTHON) -m fitkit.schema schemas

samples:  ## write the expected records of the sample logs; read the diff
	FITKIT_UPDATE_SAMPLES=1 $(PYTHON) -m pytest tests/parsers/test_golden.py

accuracy:  ## write docs/accuracy.md; benchmarks/rivals.py says how to have all columns
	$(PYTHON) benchmarks/accuracy.py > docs/accuracy.md
	$(PYTHON) benchmarks/coverage.py >> docs/accuracy.md

logs:  ## write docs/logs.md; on an idle machine, FITKIT_HTA_PYTHON names the rival's Python
	printf '# Measured on traces and logs\n\nPrinted by `make logs`.\n\n' > docs/logs.md
	$(PYTHON) benchmarks/traces.py totals >> docs/logs.md
	$(PYTHON) benchmarks/traces.py speed --repeats 2 >> docs/logs.md
	$(PYTHON) benchmarks/recorder.py --only overhead >> docs/logs.md
	$(PYTHON) benchmarks/recorder.py --only agreement --rounds 9 >> docs/logs.md
	$(PYTHON) benchmarks/mlperf_logs.py >> docs/logs.md
	$(PYTHON) benchmarks/cntk_logs.py totals >> docs/logs.md
	$(PYTHON) benchmarks/cntk_logs.py speed >> docs/logs.md

plans:  ## write docs/plans.md; on an idle machine, with PyTorch
	printf '# Measured plans\n\nPrinted by `make plans`.\n\n' > docs/plans.md
	$(PYTHON) benchmarks/planning.py >> docs/plans.md
	$(PYTHON) benchmarks/deeppool.py >> docs/plans.md
	$(PYTHON) benchmarks/sharing.py >> docs/plans.md
	$(PYTHON) benchmarks/plan_execution.py >> docs/plans.md

calibration:  ## write docs/carried.md: models carried to other hardware; with PyTorch, on an idle machine
	printf '# Measured calibration\n\nPrinted by `make calibration`.\n\n' > docs/carried.md
	$(PYTHON) benchmarks/calibration.py >> docs/carried.md
	$(PYTHON) benchmarks/layer_calibration.py >> docs/carried.md

reports:  ## write docs/pages.md: how long pages of large data sets take
	printf '# Measured pages\n\nPrinted by `make reports`.\n\n' > docs/pages.md
	$(PYTHON) benchmarks/reports.py >> docs/pages.md

fuzz:  ## ten minutes of damaged input to every parser; needs atheris
	$(PYTHON) benchmarks/fuzz.py --seconds 600

cntk-run:  ## record a run of CNTK 2.7: docs/recording_cntk.md; OPTIONS='--help' lists what can be said
	$(PYTHON) data/scripts/cntk/record_run.py $(OPTIONS)
