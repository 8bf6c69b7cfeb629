package policy

import "testing"

// TestWithin compares destinations with those of a ceiling.
func TestWithin(t *testing.T) {
	for _, c := range []struct {
		dest string
		list []string
		want bool
	}{
		{"example.com", nil, false},
		{"example.com", []string{"*"}, true},
		{"*", []string{"*"}, true},
		{"*", []string{"*.com", "0.0.0.0/0"}, false},
		{"Example.COM", []string{"example.com"}, true},
		{"a.example.com", []string{"example.com"}, false},
		{"a.example.com", []string{"*.example.com"}, true},
		{"example.com", []string{"*.example.com"}, false},
		{"notexample.com", []string{"*.example.com"}, false},
		{"*.a.example.com", []string{"*.example.com"}, true},
		{"*.example.com", []string{"*.example.com"}, true},
		{"*.com", []string{"*.example.com"}, false},
		{"192.0.2.1", []string{"192.0.2.0/24"}, true},
		{"192.0.2.0/25", []string{"192.0.2.0/24"}, true},
		{"192.0.2.0/23", []string{"192.0.2.0/24"}, false},
		{"192.0.3.1", []string{"192.0.2.0/24"}, false},
		{"0.0.0.0/0", []string{"10.0.0.0/8"}, false},
		{"::ffff:192.0.2.1", []string{"192.0.2.0/24"}, true},
		{"2001:db8::1", []string{"192.0.2.0/24", "2001:db8::/32"}, true},
		{"2001:db8::1", []string{"0.0.0.0/0"}, false},
		{"192.0.2.1", []string{"*.example.com", "example.com"}, false},
		{"no such thing", []string{"*"}, false},
	} {
		if got := Within(c.dest, c.list); got != c.want {
			t.Errorf("%s within %v: %v", c.dest, c.list, got)
		}
	}
}
