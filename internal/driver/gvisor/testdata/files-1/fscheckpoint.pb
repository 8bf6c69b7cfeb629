€ "little*

__no_name_0/X2

__no_name_0/€|