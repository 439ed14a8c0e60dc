module hulk.dev/lab/relay

go 1.26.0

require golang.org/x/sys v0.40.0
