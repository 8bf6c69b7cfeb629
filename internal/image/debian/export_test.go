package debian

// ReadTar is readTar, for its bound.
var ReadTar = readTar
