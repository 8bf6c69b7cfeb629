package debian

// maxDeb bounds one package.
const maxDeb = 2 << 30
