package main

// minimal is in every template beside the essential packages.
const minimal = "apt mawk passwd ca-certificates curl less netbase procps sudo tzdata "

// tools are the usual tools of the templates for languages.
const tools = minimal + "file git jq openssh-client patch ripgrep rsync unzip wget xz-utils zip "

// compiler compiles C, which extensions of packages need.
const compiler = "gcc g++ libc6-dev make pkgconf "

// recipes name the packages of each template. The resolver adds what they depend on, and nothing
// that is only recommended.
var recipes = []struct{ name, packages string }{
	{"debian", minimal},
	{"python", tools + "python3 python3-pip python3-venv python-is-python3"},
	{"node", tools + "nodejs npm"},
	{"go", tools + compiler + "golang-go"},
	{"rust", tools + compiler + "rustc cargo"},
	{"java", tools + "default-jdk-headless maven"},
}
