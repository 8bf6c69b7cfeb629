package daemon

import "testing"

func TestHeapPercent(t *testing.T) {
	if few, many := heapPercent(20<<20), heapPercent(300<<20); few != 100 || many >= few {
		t.Errorf("with little held %d, with much %d", few, many)
	}
}
