// Show prints how it was started: its user, directory and greeting.
package main

import (
	"fmt"
	"os"
)

func main() {
	dir, err := os.Getwd()
	fmt.Println(os.Getuid(), dir, os.Getenv("GREETING"), err)
}
