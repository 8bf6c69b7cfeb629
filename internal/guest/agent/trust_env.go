package agent

import (
	"path"
	"strings"

	"github.com/carrel-dev/carrel/internal/guest"
)

// trustVariables lead programs to the authority that do not read the system's bundle,
// or not by themselves. Where a program adds what it is given to what it has, that is the
// authority alone; where it takes it instead, it is the whole bundle.
func trustVariables(java bool) map[string]string {
	envs := map[string]string{
		"NODE_EXTRA_CA_CERTS": guest.AuthorityFile, // Node, Bun
		"DENO_CERT":           guest.AuthorityFile,

		"SSL_CERT_FILE":                      guest.BundleFile, // OpenSSL, Go, Ruby, Rust's native roots, uv
		"CURL_CA_BUNDLE":                     guest.BundleFile,
		"GIT_SSL_CAINFO":                     guest.BundleFile,
		"REQUESTS_CA_BUNDLE":                 guest.BundleFile, // Python's requests
		"PIP_CERT":                           guest.BundleFile,
		"AWS_CA_BUNDLE":                      guest.BundleFile,
		"CARGO_HTTP_CAINFO":                  guest.BundleFile,
		"npm_config_cafile":                  guest.BundleFile,
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH":   guest.BundleFile,
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": guest.BundleFile,
	}
	if java { // each start of Java tells of the variable on its standard error
		envs["JAVA_TOOL_OPTIONS"] = "-Djavax.net.ssl.trustStore=" + guest.TrustStoreFile +
			" -Djavax.net.ssl.trustStoreType=PKCS12 -Djavax.net.ssl.trustStorePassword=changeit"
	}
	return envs
}

// hasJava reports whether there is a Java in the sandbox, as far as a few looks tell.
func (a *Agent) hasJava() bool {
	envs := a.env()
	dirs := envs["PATH"]
	if dirs == "" {
		dirs = defaultPath
	}
	names := []string{"/opt/java/openjdk/bin/java"}
	if home := envs["JAVA_HOME"]; path.IsAbs(home) {
		names = append(names, home+"/bin/java")
	}
	for dir := range strings.SplitSeq(dirs, ":") {
		if path.IsAbs(dir) {
			names = append(names, dir+"/java")
		}
	}
	for _, name := range names {
		if _, err := a.sys.Stat(name); err == nil {
			return true
		}
	}
	return false
}
