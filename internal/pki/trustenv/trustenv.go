// Package trustenv knows how programs are told which authorities to trust: by the variables that those read which do
// not read the system's bundle, or not by themselves. It imports nothing, since the guest carries it.
package trustenv

// Variables lead programs to an authority's certificate. Where a program adds what it is given to what it has, that is the
// authority alone; where it takes it instead, it is the whole bundle. Both are paths of PEM files.
func Variables(authority, bundle string) map[string]string {
	return map[string]string{
		"NODE_EXTRA_CA_CERTS": authority, // Node, Bun
		"DENO_CERT":           authority,

		"SSL_CERT_FILE":                      bundle, // OpenSSL, Go, Ruby, Rust's native roots, uv
		"CURL_CA_BUNDLE":                     bundle,
		"GIT_SSL_CAINFO":                     bundle,
		"REQUESTS_CA_BUNDLE":                 bundle, // Python's requests
		"PIP_CERT":                           bundle,
		"AWS_CA_BUNDLE":                      bundle,
		"CARGO_HTTP_CAINFO":                  bundle,
		"npm_config_cafile":                  bundle,
		"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH":   bundle,
		"CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": bundle,
	}
}
