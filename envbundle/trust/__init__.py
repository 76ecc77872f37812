"""Who vouches for a bundle. Fed bytes, opens nothing; the only maker of a TrustedDescriptor."""
