# pyright: basic, reportMissingImports=false
"""tau2's own command line with the package's domains: ``python -m PACKAGE run --domain ...``."""

from tau2.cli import main

from astra.export.adapters.tau2 import register

if __name__ == "__main__":
    register()
    main()
