"""What lines of programs are made of: fields of rows, and the tables that a program is."""
