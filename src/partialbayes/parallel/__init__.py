"""More than one device, more than one machine: meshes of devices, and several processes that work as one."""
