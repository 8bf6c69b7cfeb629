package spawn

// Refused says that the kernel refused our kind of clone; tests set it to be started by package syscall.
var Refused = &refused
