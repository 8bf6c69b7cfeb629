// Package trustenv knows the environment variables that tell programs which authorities to trust.
// It is for programs that do not read the system's bundle, or not by default. It imports nothing,
// because the guest contains it.
package trustenv

// Variables returns variables that lead programs to an authority's certificate. Some programs add
// the given file to their own authorities: these get only the authority. Others use the given file
// instead: these get the whole bundle. Both are paths of PEM files.
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
