"""Indexes over the journal's rows, with which a decision need not scan tables; none is durable."""
