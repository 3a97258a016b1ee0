"""What turns docs/ into a site: `make docs` runs MkDocs (mkdocs.yml) with the hooks of this package."""
