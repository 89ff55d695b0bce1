module weather

go 1.19
