package simbash

// deadlyHere are the older variants of the deadly calls. This architecture has none.
var deadlyHere []uintptr
