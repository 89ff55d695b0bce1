# For those whose fingers say make: every target is a word of dev.py, which needs no make.
PYTHON ?= python3
.PHONY: try check setup lint types test suite cover matrix package bench clean
try check setup lint types test suite cover matrix package bench clean:
	$(PYTHON) dev.py $@
