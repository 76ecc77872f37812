"""TrustedDescriptor + Store -> generation + Receipt: preflight, materialise, fix, check, verify, switch.

What others call: ``install.install`` and ``install.check_install``, ``verify.verify_environment``,
``generations.rollback``, ``generations.generations`` and ``generations.collect``.
"""
