package simbash

// deadlyHere are the older forms of the deadly calls: this architecture has none.
var deadlyHere []uintptr
