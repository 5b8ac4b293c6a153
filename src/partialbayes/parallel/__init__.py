"""More than one device, more than one machine: meshes of devices, and processes that work as one."""
