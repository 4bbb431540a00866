-- Return the smallest unit of a currency (ISO 4217). Whether the currency exists is checked before an
-- instruction is sent.
CREATE OR REPLACE FUNCTION penstock.currency_unit(currency text) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN currency IN ('BIF', 'CLP', 'DJF', 'GNF', 'ISK', 'JPY', 'KMF', 'KRW', 'PYG', 'RWF', 'UGX',
            'UYI', 'VND', 'VUV', 'XAF', 'XOF', 'XPF') THEN 1
        WHEN currency IN ('BHD', 'IQD', 'JOD', 'KWD', 'LYD', 'OMR', 'TND') THEN 0.001
        WHEN currency IN ('CLF', 'UYW') THEN 0.0001
        ELSE 0.01
    END
$$;
