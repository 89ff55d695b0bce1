module zot-client

go 1.19
