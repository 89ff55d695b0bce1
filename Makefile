# For those whose fingers say make: every target is a word of dev.py, which needs no make.
PYTHON ?= python3
.PHONY: try check setup lint types test cover bench clean
try check setup lint types test cover bench clean:
	$(PYTHON) dev.py $@
