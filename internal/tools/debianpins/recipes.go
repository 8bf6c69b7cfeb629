package main

// minimal is in every template beside the essential packages.
const minimal = "apt mawk passwd ca-certificates curl less netbase procps sudo tzdata "

// tools are the usual tools of the templates for languages.
const tools = minimal + "file git jq openssh-client patch ripgrep rsync unzip wget xz-utils zip "

// compiler compiles C, which extensions of packages need.
const compiler = "gcc g++ libc6-dev make pkgconf "

// python is Python with its package manager and virtual environments.
const python = "python3 python3-pip python3-venv python-is-python3 "

// node is Node.js with its package manager.
const node = "nodejs npm "

// everyday are programs that agents expect of a computer and that no template for one language has.
const everyday = "attr bc bzip2 gnupg iproute2 iputils-ping lsof nano psmisc socat sqlite3 tree " +
	"vim-tiny zstd "

// recipes name the packages of each template. The resolver adds what they depend on, and nothing
// that is only recommended.
var recipes = []struct{ name, packages string }{
	{"base", tools + everyday + compiler + "build-essential python3-dev " + python + node},
	{"debian", minimal},
	{"python", tools + python},
	{"node", tools + node},
	{"go", tools + compiler + "golang-go"},
	{"rust", tools + compiler + "rustc cargo"},
	{"java", tools + "default-jdk-headless maven"},
	{"code-interpreter-v1", tools + "python3 python3-pip python3-venv python-is-python3 " +
		"python3-ipykernel python3-numpy python3-pandas python3-matplotlib nodejs npm node-typescript " +
		"r-cran-irkernel openjdk-21-jre-headless"},
}
