module example.com/zot-client

go 1.19
