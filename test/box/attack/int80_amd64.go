package main

// int80 is a system call by the 32-bit door of a 64-bit kernel, by the numbers of that architecture.
func int80(n, a, b, c int) int
