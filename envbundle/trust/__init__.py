"""Who vouches for a bundle. Fed bytes, opens nothing; the only maker of a TrustedDescriptor.

``trusted`` is the gate and ``policy`` what it goes by; ``allowed_signers``, ``revocation`` and ``name_rules``
read what people wrote about it; ``sshsig`` signs and checks, with ``keys`` and ``key_files``.
"""
