"""The first stage of ``install.pyz``: one file of the standard library alone, imported by nobody.

``envbundle.bundler.bootstrap`` copies its text into the pyz as ``__main__.py``; docs/bare-hosts.md says what
people do with it.
"""
