package debian

// ReadTar is readTar, for its bound.
var ReadTar = readTar

// MoreModules are the modules beside those of package boot.
var MoreModules = moreModules
